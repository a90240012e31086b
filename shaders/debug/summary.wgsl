// Element i of a summary, by its pair in p.slots: 0 a number (p.high times 2^32 more for the
// first), 1 minus one, 2 a counter, 3 whether a value is infinite or NaN, 4 the infinite or NaN
// value of a counter that is not zero. Grid: Shader::map.

fn counter(n: u32) -> u32 {
    return counters[p.off_counters + n];
}

fn value(i: u32) -> {{T}} {
    let slots = p.slots[i >> 1u];
    let pair = select(slots.xy, slots.zw, (i & 1u) == 1u);
    switch pair.x {
        case 0u: {
            return {{T}}(pair.y) + {{T}}(select(0u, p.high, i == 0u)) * {{T}}(4294967296.0);
        }
        case 1u: {
            return {{T}}(-1.0);
        }
        case 2u: {
            return {{T}}(counter(pair.y));
        }
        case 3u: {
            return select({{T}}(0.0), {{T}}(1.0), counter(0u) + counter(1u) + counter(2u) > 0u);
        }
        default: {
            if counter(pair.y) == 0u {
                return {{T}}(0.0);
            }
            if pair.y == 2u {
                return {{T}}(p.nan);
            }
            return select({{T}}(-p.infinity), {{T}}(p.infinity), pair.y == 1u);
        }
    }
}
