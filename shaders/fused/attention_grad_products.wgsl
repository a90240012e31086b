        for (var quad_first = 0u; quad_first < VEC4S; quad_first += QUADS) {
            workgroupBarrier();
            for (var slot = local_index; slot < rounds(POSITIONS * QUADS); slot += WORKGROUP) {
                let place = slot / QUADS;
                var loaded = vec4<f32>();
                if first + place < end {
                    loaded = {{WIDTH}}_quad(b, h, first + place, quad_first + slot % QUADS);
                }
                tile[slot % QUADS * POSITION_STRIDE + place % 4u * LANES + place / 4u] = loaded;
            }
            workgroupBarrier();
            for (var quad = 0u; quad < rounds(QUADS); quad += 1u) {
                let own_at = (quad_first + quad) * ROWS + row_lane;
                let at = quad * POSITION_STRIDE + lane;
{{COLUMNS}}
{{PRODUCTS}}
            }
        }
