        for (var k = place.k_first; k < place.k_end; k += {{DEPTH}}) {
            let end = place.k_end;
            let put = 0u;
{{FIRST}}{{PUTS}}
            workgroupBarrier();
{{STEPS}}
            workgroupBarrier();
        }
