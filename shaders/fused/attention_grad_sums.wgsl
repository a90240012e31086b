        for (var whole = 0u; whole < POSITIONS; whole += WHOLE) {
            workgroupBarrier();
            for (var slot = local_index; slot < rounds(WHOLE * VEC4S); slot += WORKGROUP) {
                let position = first + whole + slot / VEC4S;
                var loaded = vec4<f32>();
                if position < end {
                    loaded = {{WIDTH}}_quad(b, h, position, slot % VEC4S);
                }
                tile[slot] = loaded;
            }
            workgroupBarrier();
            for (var four = 0u; four < rounds(WHOLE / 4u); four += 1u) {
                let at = four * 4u * VEC4S + lane;
                let weights_at = (whole / 4u + four) * ROW_STRIDE + row_lane;
{{WEIGHTED}}
            }
        }
