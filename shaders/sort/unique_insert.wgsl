// Enters each element into a table of positions by the hash of its key: equal elements share a
// slot, which holds the first of their positions. Grid: one invocation per element. The table has
// p.mask + 1 slots, a power of two, NONE at first; slots[i] is the slot of element i, NONE for NaN,
// which equals nothing. An element that finds no slot within PROBES steps adds to failed[0].
//
// Which slot an element gets depends on which invocation comes first. That equal elements share one
// slot, and what the slot holds at the end, do not depend on it. A slot's position only ever gives
// way to that of an equal element, so a key is compared with any of them.

const NONE = 0xffffffffu;
const PROBES = {{PROBES}}u;

fn is_nan(key: vec2<u32>) -> bool {
{{NAN}}
}

fn hash(key: vec2<u32>) -> u32 {
    var h = key.x ^ (key.y * 0x9e3779b1u);
    h = (h ^ (h >> 16u)) * 0x85ebca6bu;
    h = (h ^ (h >> 13u)) * 0xc2b2ae35u;
    return h ^ (h >> 16u);
}

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let key = order_key(i);
    if is_nan(key) {
        store_slots(i, NONE);
        return;
    }
    var slot = hash(key) & p.mask;
    var searching = true;
    for (var k = 0u; k < PROBES && searching; k += 1u) {
        let at = p.off_table + slot;
        var held = atomicLoad(&table[at]);
        if held == NONE {
            let exchange = atomicCompareExchangeWeak(&table[at], NONE, i);
            held = select(exchange.old_value, i, exchange.exchanged);
        }
        // A weak exchange may fail on an empty slot: then the slot is tried again.
        if held != NONE {
            if all(order_key(held) == key) {
                if i < held {
                    atomicMin(&table[at], i);
                }
                searching = false;
            } else {
                slot = (slot + 1u) & p.mask;
            }
        }
    }
    store_slots(i, slot);
    if searching {
        atomicAdd(&failed[p.off_failed], 1u);
    }
}
