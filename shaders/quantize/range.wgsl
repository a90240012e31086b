// The largest scale that keeps the range [low, high] within the integers, zero unchanged. A row of
// ranges: the range that these integers stand for, the scale, its inverse. p.power is 2^bits, or
// half of that for signed integers. Grid: one invocation per channel.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let power = {{T}}(p.power);
    let one = {{T}}(1.0);
    let zero = {{T}}(0.0);
    var least = zero;
    if p.is_signed != 0u {
        least = select(-power, one - power, p.narrow != 0u);
    }
    let largest = power - one;
    var low = load_low(t);
    var high = load_high(t);
    var from_low = {{LARGEST}};
    if least * low > zero {
        from_low = least / low;
    }
    var from_high = {{LARGEST}};
    if largest * high > zero {
        from_high = largest / high;
    }
    var scale = from_high;
    var inverse = high / largest;
    if from_low < from_high {
        scale = from_low;
        inverse = low / least;
        high = largest * inverse;
    } else {
        low = least * inverse;
    }
    store_ranges(t * 4u, low);
    store_ranges(t * 4u + 1u, high);
    store_ranges(t * 4u + 2u, scale);
    store_ranges(t * 4u + 3u, inverse);
}
