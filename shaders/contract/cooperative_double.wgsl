        {
            let k = place.k_first;
            let end = whole;
            let put = 0u;
{{FIRST}}{{PUTS}}
        }
        workgroupBarrier();
        for (var following = whole; following <= place.k_end; following += {{DEPTH}}) {
            // Behind the last steps there are none: what is loaded then is not multiplied.
            let k = min(following, last);
            let end = place.k_end;
{{NEXT}}
{{STEPS}}
            current = 1u - current;
            let put = current * PLACE;
{{PUTS}}
            workgroupBarrier();
        }
