// order_key(i) is the element as (low, high) words whose unsigned order is the order of the values:
// -0 equals 0, NaN lies beyond the infinity of its sign. Elements narrower than 64 bits have high =
// 0, and their own number of bits in low.

fn order_key(i: u32) -> vec2<u32> {
    let bits = bits_x(i);
{{MAP}}
}
