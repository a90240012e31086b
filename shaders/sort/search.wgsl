// The number of elements of a sorted list that come before a value: those less than it, or
// (p.upper) those not greater than it. The comparisons are TensorFlow's, also where NaN makes them
// false. At most 32 iterations.

alias Compared = {{COMPARED}};

fn search(v: Compared, first: u32, n: u32) -> u32 {
    var low = first;
    var high = first + n;
    for (var step = 0u; step < 32u && low < high; step += 1u) {
        let middle = low + (high - low) / 2u;
        let s = Compared(load_sorted(middle));
        var before = s < v;
        if p.upper != 0u {
            before = !(v < s);
        }
        if before {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low - first;
}
