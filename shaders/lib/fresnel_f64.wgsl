// Fresnel's integrals. The polynomials are fits of our own at Chebyshev nodes, in t from -1 to 1.
// Errors are relative.

fn fresnel_c_f64(v: f64) -> f64 {
    let t = v * 0.30517578125lf - 1.0lf;
    var s = -1.62294726872155277e-13lf;
    s = s * t + 1.00360190717035301e-11lf;
    s = s * t - 5.13532707654238254e-10lf;
    s = s * t + 2.13464432594670781e-08lf;
    s = s * t - 7.02832015478978761e-07lf;
    s = s * t + 1.77642773552858511e-05lf;
    s = s * t - 3.30776077642803168e-04lf;
    s = s * t + 4.28781838520040353e-03lf;
    s = s * t - 3.56266466499555001e-02lf;
    s = s * t + 1.6644305991154661e-1lf;
    s = s * t - 3.49835097851538806e-1lf;
    s = s * t + 4.4345811214457083e-1lf;
    return s;
}

fn fresnel_s_f64(v: f64) -> f64 {
    let t = v * 0.30517578125lf - 1.0lf;
    var s = -1.07461328333191561e-14lf;
    s = s * t + 7.26426036093387002e-13lf;
    s = s * t - 4.10024085950590285e-11lf;
    s = s * t + 1.90056326106773673e-09lf;
    s = s * t - 7.07444123194602749e-08lf;
    s = s * t + 2.05781185843804774e-06lf;
    s = s * t - 4.51689508862218859e-05lf;
    s = s * t + 7.14232031244195347e-04lf;
    s = s * t - 7.62927874490179527e-03lf;
    s = s * t + 5.01329525923022844e-02lf;
    s = s * t - 1.76135650139544722e-1lf;
    s = s * t + 2.88939362640846055e-1lf;
    return s;
}

fn fresnel_f_middle_f64(v: f64) -> f64 {
    let t = v * 1.42857142857142857lf - 3.28571428571428571lf;
    var s = -3.49328241415098678e-12lf;
    s = s * t + 1.04463044189742465e-12lf;
    s = s * t + 8.30917000334314679e-11lf;
    s = s * t - 5.71112852057198192e-10lf;
    s = s * t + 2.85539706975182705e-09lf;
    s = s * t - 1.16286791955840323e-08lf;
    s = s * t + 3.71533734401884618e-08lf;
    s = s * t - 7.76016513045213216e-08lf;
    s = s * t - 3.69482918857776062e-08lf;
    s = s * t + 1.4461103173554142e-06lf;
    s = s * t - 9.44923792011370306e-06lf;
    s = s * t + 4.39519715474994465e-05lf;
    s = s * t - 1.67696138911507336e-04lf;
    s = s * t + 5.46471172207073547e-04lf;
    s = s * t - 1.5344589741997465e-03lf;
    s = s * t + 3.67429068638816185e-03lf;
    s = s * t - 7.25546759969602872e-03lf;
    s = s * t + 1.0895467155852879e-02lf;
    s = s * t + 9.90200496482706934e-1lf;
    return s;
}

fn fresnel_g_middle_f64(v: f64) -> f64 {
    let t = v * 1.42857142857142857lf - 3.28571428571428571lf;
    var s = -1.63083578123376683e-11lf;
    s = s * t + 1.82902367516571995e-10lf;
    s = s * t - 9.83025397202612853e-10lf;
    s = s * t + 3.6552755483860878e-09lf;
    s = s * t - 9.54016324678005261e-09lf;
    s = s * t + 8.15003788465872516e-09lf;
    s = s * t + 8.85617559584683103e-08lf;
    s = s * t - 6.88848191167049267e-07lf;
    s = s * t + 3.13698404813279905e-06lf;
    s = s * t - 1.0354886746397789e-05lf;
    s = s * t + 2.33812126198534922e-05lf;
    s = s * t - 1.53318556957244333e-05lf;
    s = s * t - 1.72414668110488377e-04lf;
    s = s * t + 1.1201249060677079e-03lf;
    s = s * t - 4.37436376213522434e-03lf;
    s = s * t + 1.28185937167572276e-02lf;
    s = s * t - 2.89625405947535417e-02lf;
    s = s * t + 4.76787870837158007e-02lf;
    s = s * t + 9.5440110439919062e-1lf;
    return s;
}

fn fresnel_f_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = 2.97738385786052861e-13lf;
    s = s * t - 6.91969865673570613e-13lf;
    s = s * t + 6.74139304428628558e-13lf;
    s = s * t - 2.33311158704818138e-12lf;
    s = s * t + 9.59430667650124749e-12lf;
    s = s * t - 3.28483505624028014e-11lf;
    s = s * t + 1.24790120155906252e-10lf;
    s = s * t - 5.47223205042444454e-10lf;
    s = s * t + 2.8078406684339038e-09lf;
    s = s * t - 1.76084910897230385e-08lf;
    s = s * t + 1.44058495538072514e-07lf;
    s = s * t - 1.70382973912861112e-06lf;
    s = s * t + 3.48624204150435952e-05lf;
    s = s * t - 1.80079549468772017e-03lf;
    s = s * t + 9.98162473061877859e-1lf;
    return s;
}

fn fresnel_g_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = -1.299123089020518e-12lf;
    s = s * t + 2.48859112284944976e-12lf;
    s = s * t + 5.385916229391821e-13lf;
    s = s * t + 5.20894537271285633e-13lf;
    s = s * t - 1.42261400865957764e-11lf;
    s = s * t + 3.43376793241903182e-11lf;
    s = s * t - 8.19431059972060052e-11lf;
    s = s * t + 2.50227118266073488e-10lf;
    s = s * t - 8.26116294276963797e-10lf;
    s = s * t + 2.95869630292743027e-09lf;
    s = s * t - 1.18774344281961322e-08lf;
    s = s * t + 5.48668052220400985e-08lf;
    s = s * t - 3.02390122572981599e-07lf;
    s = s * t + 2.09682560578646672e-06lf;
    s = s * t - 1.9844850656573353e-05lf;
    s = s * t + 2.93315826811722884e-04lf;
    s = s * t - 8.72507811011957792e-03lf;
    s = s * t + 9.90959291083127451e-1lf;
    return s;
}

// Sine and cosine of pi x^2 / 2 for 0 <= x < 1e15, where every quarter turn counts: x is cut in
// two, whose squares and product are exact.
fn square_turn_f64(x: f64) -> vec2<f64> {
    let high = bitcast<f64>(bitcast<u64>(x) & 0xfffffffff8000000lu);
    let low = x - high;
    let main = high * high;
    let cross = 2.0lf * high * low;
    let square = low * low;
    let a = main - 4.0lf * floor(0.25lf * main);
    let b = cross - 4.0lf * floor(0.25lf * cross);
    let d = square - 4.0lf * floor(0.25lf * square);
    // x^2 modulo 4 = quarter + rest; a quarter is pi / 2.
    let quarter = round(a + b + d);
    let rest = (a - quarter) + b + d;
    let angle = 1.57079632679489662lf * rest;
    let z = angle * angle;
    var s = 2.81145725434552076e-15lf;
    s = s * z - 7.64716373181981648e-13lf;
    s = s * z + 1.60590438368216146e-10lf;
    s = s * z - 2.50521083854417188e-08lf;
    s = s * z + 2.75573192239858907e-06lf;
    s = s * z - 1.98412698412698413e-04lf;
    s = s * z + 8.33333333333333333e-03lf;
    s = s * z - 1.66666666666666667e-1lf;
    s = s * z + 1.0lf;
    s = s * angle;
    var c = -1.56192069685862265e-16lf;
    c = c * z + 4.7794773323873853e-14lf;
    c = c * z - 1.14707455977297247e-11lf;
    c = c * z + 2.0876756987868099e-09lf;
    c = c * z - 2.75573192239858907e-07lf;
    c = c * z + 2.48015873015873016e-05lf;
    c = c * z - 1.38888888888888889e-03lf;
    c = c * z + 4.16666666666666667e-02lf;
    c = c * z - 5.0e-1lf;
    c = c * z + 1.0lf;
    switch u32(quarter) & 3u {
        case 0u: { return vec2<f64>(s, c); }
        case 1u: { return vec2<f64>(c, -s); }
        case 2u: { return vec2<f64>(-s, -c); }
        default: { return vec2<f64>(-c, s); }
    }
}

// The cosine and the sine integral of x >= 0.
fn fresnel_f64(x: f64) -> vec2<f64> {
    let z = x * x * x * x;
    if x < 1.6lf {
        return vec2<f64>(x * fresnel_c_f64(z), x * x * x * fresnel_s_f64(z));
    }
    if x >= 1e15 {
        return vec2<f64>(0.5lf, 0.5lf);
    }
    var f: f64;
    var g: f64;
    if x < 3.0lf {
        f = fresnel_f_middle_f64(x);
        g = fresnel_g_middle_f64(x);
    } else {
        let w = 3.0lf / x;
        let v = w * w * w * w;
        f = fresnel_f_f64(v);
        g = fresnel_g_f64(v);
    }
    f = f / (3.14159265358979324lf * x);
    let h = 3.14159265358979324lf * x;
    g = g / (h * h * x);
    let turn = square_turn_f64(x);
    return vec2<f64>(0.5lf + (f * turn.x - g * turn.y), 0.5lf - (f * turn.y + g * turn.x));
}

fn fresnel_cos_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    return copy_sign_f64(fresnel_f64(abs(x)).x, x);
}

fn fresnel_sin_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    return copy_sign_f64(fresnel_f64(abs(x)).y, x);
}
