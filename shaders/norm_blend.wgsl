// y = keep * old + take * new; `old` is not read if keep is 0. Grid: Grid::map over p.count
// elements of y.

fn value(i: u32) -> f32 {
    if p.keep == 0.0 {
        return p.take * load_new_value(i);
    }
    return p.keep * load_old(i) + p.take * load_new_value(i);
}
