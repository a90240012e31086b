// Adds up the tiles that the shares of stream_k.wgsl cut: adds their parts' sums in the order of k,
// and stores them. Grid: one workgroup for each share but the first, for the tile in which the
// share begins, unless an earlier share begins in that tile. Bindings: c, the epilogue's operands,
// partial.

{{ENTRY}} {
    let share = workgroup_id.y * num_workgroups.x + workgroup_id.x + 1u;
    let start = share_start(share);
    let tile = start / p.steps;
    let first = tile * p.steps;
    if share >= p.shares || start == first || share_start(share - 1u) > first {
        return;
    }
    // The first share that begins behind the tile.
    var end = share + 1u;
    while end < p.shares && share_start(end) < first + p.steps {
        end += 1u;
    }
    let place = place_of(tile);
    for (var i = local_index; i < VEC4S; i += WORKGROUP) {
        let row = place.m + i / ROW;
        let column = place.n + i % ROW * 4u;
        if row < p.m && column < p.n {
            var sum = partial[p.off_partial + (2u * share - 1u) * VEC4S + i];
            for (var other = share; other < end; other += 1u) {
                sum = plus(sum, partial[p.off_partial + 2u * other * VEC4S + i]);
            }
            let line = place.c + c_line(row);
            store_quad(line, column, finish(sum, line, column));
        }
    }
}
