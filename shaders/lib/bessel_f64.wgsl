// The Bessel functions J and Y of order 0 and 1. The polynomials are fits of our own at Chebyshev
// nodes, in t from -1 to 1; those of p and q are Hankel's: J + iY = (p + iq / x) sqrt(2 / (pi x))
// exp(i (x - phase)). Errors are relative, except for J and Y near their zeros, where they are
// relative to the amplitude.

fn j0_small_f64(v: f64) -> f64 {
    let t = v * 0.08lf - 1.0lf;
    var s = -5.58707983647851021e-14lf;
    s = s * t + 2.96944733295837783e-12lf;
    s = s * t - 1.33899575768138733e-10lf;
    s = s * t + 5.05929418592935799e-09lf;
    s = s * t - 1.57184285651390415e-07lf;
    s = s * t + 3.92850888776894942e-06lf;
    s = s * t - 7.68343360205772674e-05lf;
    s = s * t + 1.13436350958630939e-03lf;
    s = s * t - 1.20352141543293923e-02lf;
    s = s * t + 8.53918235425967351e-02lf;
    s = s * t - 3.60180765950386316e-1lf;
    s = s * t + 7.09416003533541783e-1lf;
    s = s * t - 2.16505413898191768e-1lf;
    s = s * t - 3.84744509814045382e-1lf;
    return s;
}

fn j1_small_f64(v: f64) -> f64 {
    let t = v * 0.08lf - 1.0lf;
    var s = -2.02571436106138603e-15lf;
    s = s * t + 1.16218896325904116e-13lf;
    s = s * t - 5.69526173619690128e-12lf;
    s = s * t + 2.35663232353674505e-10lf;
    s = s * t - 8.09487766088008894e-09lf;
    s = s * t + 2.26345371359477681e-07lf;
    s = s * t - 5.02849137254604083e-06lf;
    s = s * t + 8.60544563430365176e-05lf;
    s = s * t - 1.08898896920385404e-03lf;
    s = s * t + 9.62817132346351594e-03lf;
    s = s * t - 5.46507670672617997e-02lf;
    s = s * t + 1.72886767656185432e-1lf;
    s = s * t - 2.27013121130733374e-1lf;
    s = s * t + 3.46408662237106829e-02lf;
    return s;
}

fn y0_small_f64(v: f64) -> f64 {
    let t = v * 0.08lf - 1.0lf;
    var s = 1.16660395307468903e-13lf;
    s = s * t - 6.04993694723965028e-12lf;
    s = s * t + 2.65399752486258185e-10lf;
    s = s * t - 9.72095520804540068e-09lf;
    s = s * t + 2.91422068896370877e-07lf;
    s = s * t - 6.98550437407706084e-06lf;
    s = s * t + 1.29946290920821696e-04lf;
    s = s * t - 1.80280966655038523e-03lf;
    s = s * t + 1.76353453893387589e-02lf;
    s = s * t - 1.11516821843286551e-1lf;
    s = s * t + 3.88516399565709418e-1lf;
    s = s * t - 4.70576365529728781e-1lf;
    s = s * t - 4.32655822285512518e-1lf;
    s = s * t + 4.83724857810299504e-1lf;
    return s;
}

fn y1_small_f64(v: f64) -> f64 {
    let t = v * 0.08lf - 1.0lf;
    var s = 4.27790760124764507e-15lf;
    s = s * t - 2.39778234166918285e-13lf;
    s = s * t + 1.14489438380499816e-11lf;
    s = s * t - 4.6013010745475041e-10lf;
    s = s * t + 1.52889018257371398e-08lf;
    s = s * t - 4.11377807953124367e-07lf;
    s = s * t + 8.73309830484877525e-06lf;
    s = s * t - 1.4141835794484213e-04lf;
    s = s * t + 1.66880313286359421e-03lf;
    s = s * t - 1.3433433740818166e-02lf;
    s = s * t + 6.63469535477910705e-02lf;
    s = s * t - 1.63120203581187153e-1lf;
    s = s * t + 9.10865083844844369e-02lf;
    s = s * t + 1.39749390335688049e-1lf;
    return s;
}

fn p0_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = -2.23539115491204409e-12lf;
    s = s * t + 3.61438634924860043e-12lf;
    s = s * t + 3.41531154257287625e-12lf;
    s = s * t - 3.74359298051202567e-12lf;
    s = s * t - 1.3637307914439567e-11lf;
    s = s * t + 2.48236444437734072e-11lf;
    s = s * t - 3.5386629228967748e-11lf;
    s = s * t + 9.72505514577649912e-11lf;
    s = s * t - 2.85179457972969395e-10lf;
    s = s * t + 8.56229259184169306e-10lf;
    s = s * t - 2.87054361492325738e-09lf;
    s = s * t + 1.10583018185920533e-08lf;
    s = s * t - 5.08643230838394018e-08lf;
    s = s * t + 2.97590102017370624e-07lf;
    s = s * t - 2.45996332148489113e-06lf;
    s = s * t + 3.49173058107708488e-05lf;
    s = s * t - 1.32749312720040036e-03lf;
    s = s * t + 9.98634765909199069e-1lf;
    return s;
}

fn q0_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = 4.36543607577361236e-12lf;
    s = s * t - 6.03202874786507944e-12lf;
    s = s * t - 1.43573981932557083e-11lf;
    s = s * t + 1.76520672823488917e-11lf;
    s = s * t + 2.97610392294539667e-11lf;
    s = s * t - 3.72366743477989925e-11lf;
    s = s * t - 1.60564755578082251e-11lf;
    s = s * t + 6.98456444080318079e-12lf;
    s = s * t + 6.5258767297445713e-11lf;
    s = s * t - 1.22175528804553115e-10lf;
    s = s * t + 2.34047336128321225e-10lf;
    s = s * t - 5.80707654175901661e-10lf;
    s = s * t + 1.52828436311618963e-09lf;
    s = s * t - 4.29567204062890031e-09lf;
    s = s * t + 1.3296573119800335e-08lf;
    s = s * t - 4.63978022283004406e-08lf;
    s = s * t + 1.88702978010355727e-07lf;
    s = s * t - 9.40987532630378068e-07lf;
    s = s * t + 6.23911316965568964e-06lf;
    s = s * t - 6.33871544250922664e-05lf;
    s = s * t + 1.31421397291024784e-03lf;
    s = s * t - 1.2361496352611865e-1lf;
    return s;
}

fn p1_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = 2.36852252818676692e-12lf;
    s = s * t - 3.83751644815950809e-12lf;
    s = s * t - 3.59067384008435129e-12lf;
    s = s * t + 3.9193568327846741e-12lf;
    s = s * t + 1.4551592853265448e-11lf;
    s = s * t - 2.66223296764501167e-11lf;
    s = s * t + 3.8451893184433864e-11lf;
    s = s * t - 1.05950897492310975e-10lf;
    s = s * t + 3.11773707410593567e-10lf;
    s = s * t - 9.42214749499667344e-10lf;
    s = s * t + 3.18495775867394465e-09lf;
    s = s * t - 1.2402701962004368e-08lf;
    s = s * t + 5.79166784221401543e-08lf;
    s = s * t - 3.46671915134115893e-07lf;
    s = s * t + 2.97862110514417413e-06lf;
    s = s * t - 4.57828065293909821e-05lf;
    s = s * t + 2.24146321391719129e-03lf;
    s = s * t + 1.0022906462560662lf;
    return s;
}

fn q1_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = 6.34939190553958561e-12lf;
    s = s * t - 9.02464972254432272e-12lf;
    s = s * t - 1.85408164468436143e-11lf;
    s = s * t + 2.2920253872927305e-11lf;
    s = s * t + 3.92233973726015415e-11lf;
    s = s * t - 5.16159274308556706e-11lf;
    s = s * t - 6.89205047363143679e-12lf;
    s = s * t - 1.69190854656419555e-11lf;
    s = s * t + 1.31046143084637318e-10lf;
    s = s * t - 2.78629906776011244e-10lf;
    s = s * t + 6.29674965436524293e-10lf;
    s = s * t - 1.6563207992528957e-09lf;
    s = s * t + 4.70414182687042692e-09lf;
    s = s * t - 1.46656711589248646e-08lf;
    s = s * t + 5.16414227980194282e-08lf;
    s = s * t - 2.12667263452150353e-07lf;
    s = s * t + 1.07988539420892434e-06lf;
    s = s * t - 7.36992795454526303e-06lf;
    s = s * t + 7.89809417794323906e-05lf;
    s = s * t - 1.86484962184122081e-03lf;
    s = s * t + 3.73047433174080204e-1lf;
    return s;
}

// cos x + sin x and sin x - cos x: sqrt(2) times cosine and sine of x - pi / 4.
fn circle_f64(x: f64) -> vec2<f64> {
    let s = sin_f64(x);
    let c = cos_f64(x);
    return vec2<f64>(c + s, s - c);
}

fn bessel_j0_f64(x: f64) -> f64 {
    if !is_finite_f64(x) {
        return nan_like_f64(x);
    }
    let a = abs(x);
    if a <= 5.0lf {
        return j0_small_f64(a * a);
    }
    let w = 5.0lf / a;
    let circle = circle_f64(a);
    return 0.564189583547756287lf / sqrt(a) * (p0_f64(w * w) * circle.x - q0_f64(w * w) / a
        * circle.y);
}

fn bessel_j1_f64(x: f64) -> f64 {
    if !is_finite_f64(x) {
        return nan_like_f64(x);
    }
    let a = abs(x);
    if a <= 5.0lf {
        return x * j1_small_f64(a * a);
    }
    let w = 5.0lf / a;
    let circle = circle_f64(a);
    let y = 0.564189583547756287lf / sqrt(a) * (p1_f64(w * w) * circle.y + q1_f64(w * w) / a
        * circle.x);
    return select(y, -y, x < 0.0lf);
}

fn bessel_y0_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if x <= 0.0lf {
        return infinity_like_f64(-1.0lf);
    }
    if is_inf_f64(x) {
        return nan_like_f64(x);
    }
    if x <= 5.0lf {
        let z = x * x;
        return y0_small_f64(z) + 0.636619772367581343lf * log_f64(x) * j0_small_f64(z);
    }
    let w = 5.0lf / x;
    let circle = circle_f64(x);
    return 0.564189583547756287lf / sqrt(x) * (p0_f64(w * w) * circle.y + q0_f64(w * w) / x
        * circle.x);
}

fn bessel_y1_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if x <= 0.0lf {
        return infinity_like_f64(-1.0lf);
    }
    if is_inf_f64(x) {
        return nan_like_f64(x);
    }
    if x <= 5.0lf {
        let z = x * x;
        return x * y1_small_f64(z) + 0.636619772367581343lf * (log_f64(x) * (x * j1_small_f64(z))
            - 1.0lf / x);
    }
    let w = 5.0lf / x;
    let circle = circle_f64(x);
    return 0.564189583547756287lf / sqrt(x) * (q1_f64(w * w) / x * circle.y - p1_f64(w * w)
        * circle.x);
}
