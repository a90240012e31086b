
// The states of four neighbours.
struct Four {
    a: State,
    b: State,
    c: State,
    d: State,
}

fn identity_four() -> Four {
    return Four(identity(), identity(), identity(), identity());
}

fn merge_four(x: Four, y: Four) -> Four {
    return Four(merge(x.a, y.a), merge(x.b, y.b), merge(x.c, y.c), merge(x.d, y.d));
}
