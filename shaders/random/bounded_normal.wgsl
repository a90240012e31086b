// Normal numbers between two bounds, by rejection (Robert: "Simulation of truncated normal
// variables", 1995): from normal numbers if most of them lie inside, from uniform ones if the
// bounds are near each other, else from exponential ones behind the lower bound. Output i has 256
// samples of 128 bits of the stream for itself. Its parameters are those of place i / p.each,
// modulo p.places. Computed in {{F}}. Grid: map.

// A bound beyond this counts as open.
const FAR = {{F}}(1.0e30);
// If the bounds are this many deviations apart, most normal numbers lie inside.
const WIDE = {{WIDE}};

fn is_open(x: {{F}}) -> bool {
    return abs(x) >= FAR || is_inf_{{F}}(x);
}

fn within_far(x: {{F}}) -> {{F}} {
    if !is_open(x) {
        return x;
    }
    return select(FAR, -FAR, x < {{F}}(0.0));
}

// A normal number between `low` and `high`, of which low is 0 or more, or both lie around 0.
fn bounded(low: {{F}}, high: {{F}}, start: vec4<u32>, key: vec2<u32>) -> {{F}} {
    let is_wide = (low < -WIDE && high >= {{F}}(0.0)) || (high > WIDE && low <= {{F}}(0.0));
    var root = low;
    if abs(low) < {{F}}(1.0e10) {
        root = sqrt(low * low + {{F}}(4.0));
    }
    let sum = low + root;
    let distance = high - low;
    let is_near = distance < {{F}}(2.0) * exp_{{F}}({{F}}(0.5) - low / sum) / sum;
    let rate = {{F}}(0.5) * sum;
    var z = low;
    // At worst one try in two fails.
    for (var attempt = 0u; attempt < 200u; attempt += 1u) {
        let words = philox(philox_skip(start, vec2<u32>(attempt, 0u)), key);
        if is_wide {
            let normal = wide_normal_{{F}}(words);
            if normal.x >= low && normal.x <= high {
                return normal.x;
            }
            if normal.y >= low && normal.y <= high {
                return normal.y;
            }
            continue;
        }
        let u = wide_unit_{{F}}(words.zw);
        if is_near {
            let step = wide_unit_{{F}}(words.xy) * distance;
            z = low + step;
            // The density, relative to its largest value within the bounds.
            let less = select(step * (z + low), z * z, low < {{F}}(0.0));
            if u <= exp_{{F}}({{F}}(-0.5) * less) {
                return z;
            }
        } else {
            z = low - wide_log_rest_{{F}}(words.xy) / rate;
            let off = select(low - rate, rate - z, low < rate);
            if u <= exp_{{F}}({{F}}(-0.5) * off * off) && z < high {
                return z;
            }
        }
    }
    return min(z, high);
}

fn value(i: u32) -> {{F}} {
    let place = i / p.each % p.places;
    let mean = load_means(min(place, p.counts0 - 1u));
    let deviation = load_stddevs(min(place, p.counts1 - 1u));
    let least = load_minvals(min(place, p.counts2 - 1u));
    let most = load_maxvals(min(place, p.counts3 - 1u));
    if !(deviation > {{F}}(0.0) && least < most) || (is_open(least) && is_open(most)) {
        return nan_like_{{F}}(mean);
    }
    let low = within_far((within_far(least) - mean) / deviation);
    let high = within_far((within_far(most) - mean) / deviation);
    let g = generator();
    let start = philox_skip(g.counter, vec2<u32>(i << 8u, i >> 24u));
    // Bounds are mirrored, so that one bound is 0 or more, or the open one is above.
    if is_open(least) || most < mean {
        return mean - deviation * bounded(-high, -low, start, g.key);
    }
    return mean + deviation * bounded(low, high, start, g.key);
}
