// The moments of a set of numbers and their merging (Chan, Golub, LeVeque): as accurate as two
// passes, but in one. The sum is kept in place of the mean, so that the mean equals that of a plain
// reduction, including infinities.

struct Moments {
    count: Accumulator,
    sum: Accumulator,
    // The sum of the squared differences from the mean.
    squares: Accumulator,
}

fn mean_of(m: Moments) -> Accumulator {
    return m.sum / select(m.count, Accumulator(1), m.count == Accumulator(0));
}

fn merge_moments(a: Moments, b: Moments) -> Moments {
    let count = a.count + b.count;
    let share = a.count / select(count, Accumulator(1), count == Accumulator(0));
    let delta = mean_of(b) - mean_of(a);
    // The weight is 0 where one set is empty. It multiplies only one factor, so that the other
    // cannot overflow first.
    return Moments(count, a.sum + b.sum,
        a.squares + b.squares + delta * (delta * (share * b.count)));
}
