// The workgroup memory of the gradients of attention: POSITIONS rows of the other side, which a
// workgroup goes over, and the parts of its invocations in the products with them. of_depth and
// of_width are groups of four elements of those rows, as wide as keys and as wide as values.

const PARTS = {{PARTS}}u;
const ROWS = WORKGROUP / PARTS;
const POSITIONS = {{POSITIONS}}u;
const VEC4S = {{VEC4S}}u;

// Keys and values, or queries and the gradients of their results.
var<workgroup> depth_tile: array<vec4<f32>, POSITIONS * VEC4S>;
var<workgroup> width_tile: array<vec4<f32>, POSITIONS * VEC4S>;
// What each invocation adds to the products of its rows with the rows of both tiles, position by
// position.
var<workgroup> scores: array<f32, POSITIONS * WORKGROUP>;
var<workgroup> changes: array<f32, POSITIONS * WORKGROUP>;

// Loads the rows from position `first` on; those from `end` on are zeros.
fn load_tiles(b: u32, h: u32, first: u32, end: u32, local_index: u32) {
    for (var slot = local_index; slot < POSITIONS * VEC4S; slot += WORKGROUP) {
        let position = first + slot / VEC4S;
        var depth_quad = vec4<f32>();
        var width_quad = vec4<f32>();
        if position < end {
            depth_quad = of_depth(b, h, position, slot % VEC4S);
            width_quad = of_width(b, h, position, slot % VEC4S);
        }
        depth_tile[slot] = depth_quad;
        width_tile[slot] = width_quad;
    }
}
