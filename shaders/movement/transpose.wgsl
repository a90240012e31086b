// A batch of matrix transposes: dst[b, r, c] = src[b * p.batch_stride + c * p.row_stride + r], with
// dst dense. Grid: one workgroup of 256 invocations per tile of {{TILE}} x {{TILE}} elements, tiles
// of a matrix first, then matrices. Reads and writes of a row of invocations are contiguous; the
// tile has an additional column against bank conflicts.

const TILE = {{TILE}}u;
const ROWS = WORKGROUP / TILE;

var<workgroup> tile: array<array<{{ELEMENT}}, TILE + 1u>, TILE>;

{{ENTRY}} {
    let across = (p.columns + TILE - 1u) / TILE;
    let down = (p.rows + TILE - 1u) / TILE;
    let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let first_column = (group % across) * TILE;
    let first_row = ((group / across) % down) * TILE;
    let batch = group / (across * down);
    let x = local_index % TILE;
    let y = local_index / TILE;
    for (var k = y; k < TILE; k += ROWS) {
        let r = first_row + x;
        let c = first_column + k;
        if batch < p.batches && r < p.rows && c < p.columns {
            tile[k][x] = load_src(batch * p.batch_stride + c * p.row_stride + r);
        }
    }
    workgroupBarrier();
    for (var k = y; k < TILE; k += ROWS) {
        let r = first_row + k;
        let c = first_column + x;
        if batch < p.batches && r < p.rows && c < p.columns {
            store_dst((batch * p.rows + r) * p.columns + c, tile[x][k]);
        }
    }
}
