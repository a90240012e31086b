// dst[i] is element i of the box within src. Grid: Unit::grid over p.count elements of dst.

fn value(i: u32) -> {{ELEMENT}} {
    return load_src(in_whole(i));
}
