// The elements that are not zero, in blocks of WORKGROUP * 32: an invocation's elements are the
// bits of a word. Grid: one workgroup per block. COUNT: totals[block] is their number. Otherwise
// their coordinates are the rows of the int64 matrix `out` from starts[block] on: elements are
// first listed in workgroup memory, so that each invocation writes whole rows next to those of its
// neighbours.

const BLOCK = WORKGROUP * 32u;

{{FLAGS}}

// Bits beyond the last element are 0.
fn live_flags(first: u32) -> u32 {
    if first >= p.count {
        return 0u;
    }
    let left = min(p.count - first, 32u);
    return flags(first) & (0xffffffffu >> (32u - left));
}

{{FINISH}}
