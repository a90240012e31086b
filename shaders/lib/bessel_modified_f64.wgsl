// The modified Bessel functions I and K of order 0 and 1, plain and scaled by the exponential. The
// polynomials are fits of our own at Chebyshev nodes, in t from -1 to 1. Errors are relative.

fn i0e_small_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 1.0lf;
    var s = 4.44484446637873776e-11lf;
    s = s * t - 2.53089994665535127e-10lf;
    s = s * t + 1.13415934215368921e-09lf;
    s = s * t - 5.84101614571513817e-09lf;
    s = s * t + 2.9209616352117891e-08lf;
    s = s * t - 1.36195267392667642e-07lf;
    s = s * t + 6.0056686107933012e-07lf;
    s = s * t - 2.5028526377683193e-06lf;
    s = s * t + 9.81395862769787106e-06lf;
    s = s * t - 3.60646371322622096e-05lf;
    s = s * t + 1.23682594989692688e-04lf;
    s = s * t - 3.93934501488966233e-04lf;
    s = s * t + 1.15888319775791686e-03lf;
    s = s * t - 3.12923287407309995e-03lf;
    s = s * t + 7.70061052263382555e-03lf;
    s = s * t - 1.71317947924452502e-02lf;
    s = s * t + 3.41505388391452157e-02lf;
    s = s * t - 6.04316795008675852e-02lf;
    s = s * t + 9.41616340200868389e-02lf;
    s = s * t - 1.28895621330521383e-1lf;
    s = s * t + 1.57686843969995904e-1lf;
    s = s * t - 1.86478066609466801e-1lf;
    s = s * t + 3.08508322553671039e-1lf;
    return s;
}

fn i0e_middle_f64(v: f64) -> f64 {
    let t = v * 0.333333333333333333lf - 2.33333333333333333lf;
    var s = 2.58083769089000455e-11lf;
    s = s * t - 1.01025556357275351e-10lf;
    s = s * t + 2.37784793585735355e-10lf;
    s = s * t - 8.38404300664276837e-10lf;
    s = s * t + 3.16405822040473309e-09lf;
    s = s * t - 1.02977923156978061e-08lf;
    s = s * t + 3.15618525704782263e-08lf;
    s = s * t - 9.35050233061524583e-08lf;
    s = s * t + 2.64731190689812841e-07lf;
    s = s * t - 7.14820431743792389e-07lf;
    s = s * t + 1.84619699950663488e-06lf;
    s = s * t - 4.57744133158178957e-06lf;
    s = s * t + 1.09551115704399199e-05lf;
    s = s * t - 2.55147984902644309e-05lf;
    s = s * t + 5.84507660569553236e-05lf;
    s = s * t - 1.33352216709715918e-04lf;
    s = s * t + 3.0680023522864709e-04lf;
    s = s * t - 7.19621542296397597e-04lf;
    s = s * t + 1.73659370547499521e-03lf;
    s = s * t - 4.35487657892610597e-03lf;
    s = s * t + 1.15649387848012091e-02lf;
    s = s * t - 3.43455298898477554e-02lf;
    s = s * t + 1.53737744672881248e-1lf;
    return s;
}

fn i0e_large_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = 2.73728881732028328e-12lf;
    s = s * t - 6.4703890959533905e-12lf;
    s = s * t - 2.40813288371839193e-11lf;
    s = s * t + 3.22078469482145532e-11lf;
    s = s * t + 1.0151801399103754e-10lf;
    s = s * t - 3.68256064771960087e-11lf;
    s = s * t - 2.42152946615112681e-10lf;
    s = s * t - 1.53223671078744463e-10lf;
    s = s * t + 1.51352039474807404e-10lf;
    s = s * t + 3.93357467237622844e-10lf;
    s = s * t + 6.33657824722287134e-10lf;
    s = s * t + 1.27440826130969624e-09lf;
    s = s * t + 3.55945128887590984e-09lf;
    s = s * t + 1.36360735900571263e-08lf;
    s = s * t + 7.07840054312232473e-08lf;
    s = s * t + 5.04125684528064373e-07lf;
    s = s * t + 5.15203395111574595e-06lf;
    s = s * t + 8.31132726390793228e-05lf;
    s = s * t + 2.64588596718620674e-03lf;
    s = s * t + 4.01509760831206499e-1lf;
    return s;
}

fn i1e_small_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 1.0lf;
    var s = 4.20996573959492957e-12lf;
    s = s * t - 2.51302697678006727e-11lf;
    s = s * t + 1.20669314814680538e-10lf;
    s = s * t - 6.55845684876055881e-10lf;
    s = s * t + 3.45752808163617146e-09lf;
    s = s * t - 1.71096867687105709e-08lf;
    s = s * t + 8.03885917558405196e-08lf;
    s = s * t - 3.58282217345454958e-07lf;
    s = s * t + 1.50917723608536034e-06lf;
    s = s * t - 5.98841057600108923e-06lf;
    s = s * t + 2.23049191622232037e-05lf;
    s = s * t - 7.76734319271623772e-05lf;
    s = s * t + 2.51753975577298885e-04lf;
    s = s * t - 7.5563234001977218e-04lf;
    s = s * t + 2.08822389538226276e-03lf;
    s = s * t - 5.27869258381536389e-03lf;
    s = s * t + 1.21140162331119693e-02lf;
    s = s * t - 2.50193877022910902e-02lf;
    s = s * t + 4.60293562105581382e-02lf;
    s = s * t - 7.44881385764818429e-02lf;
    s = s * t + 1.04201961931308491e-1lf;
    s = s * t - 1.22030255944204282e-1lf;
    s = s * t + 1.0763464462446883e-1lf;
    return s;
}

fn i1e_middle_f64(v: f64) -> f64 {
    let t = v * 0.333333333333333333lf - 2.33333333333333333lf;
    var s = -2.35104557475754479e-11lf;
    s = s * t + 9.12745144321668617e-11lf;
    s = s * t - 2.10470229468695763e-10lf;
    s = s * t + 7.316344559530828e-10lf;
    s = s * t - 2.73149682159800003e-09lf;
    s = s * t + 8.71903247305771498e-09lf;
    s = s * t - 2.60455859344532257e-08lf;
    s = s * t + 7.47861144081481816e-08lf;
    s = s * t - 2.03383440012546384e-07lf;
    s = s * t + 5.20620041332738645e-07lf;
    s = s * t - 1.25106017255193591e-06lf;
    s = s * t + 2.80733370474547027e-06lf;
    s = s * t - 5.82893640086418577e-06lf;
    s = s * t + 1.10022437908554082e-05lf;
    s = s * t - 1.80936100433125696e-05lf;
    s = s * t + 2.25164921389862597e-05lf;
    s = s * t - 4.35493935391801618e-06lf;
    s = s * t - 1.06021071779430415e-04lf;
    s = s * t + 5.37224468448850084e-04lf;
    s = s * t - 2.03941830496199582e-03lf;
    s = s * t + 7.21006220587199886e-03lf;
    s = s * t - 2.66355706999802508e-02lf;
    s = s * t + 1.42289234709598675e-1lf;
    return s;
}

fn i1e_large_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = -2.67539797090912803e-12lf;
    s = s * t + 6.88385182464509155e-12lf;
    s = s * t + 2.40309522965210921e-11lf;
    s = s * t - 3.47627674897171747e-11lf;
    s = s * t - 1.03424220527700921e-10lf;
    s = s * t + 4.27498446299272444e-11lf;
    s = s * t + 2.52172446980114053e-10lf;
    s = s * t + 1.54021054692311298e-10lf;
    s = s * t - 1.64706350014907153e-10lf;
    s = s * t - 4.18501668413284548e-10lf;
    s = s * t - 6.7951734861562943e-10lf;
    s = s * t - 1.38962322586540524e-09lf;
    s = s * t - 3.96500592177305392e-09lf;
    s = s * t - 1.55991196386166609e-08lf;
    s = s * t - 8.38964313885934476e-08lf;
    s = s * t - 6.29429568482000328e-07lf;
    s = s * t - 7.01236131332599056e-06lf;
    s = s * t - 1.34801466339823134e-04lf;
    s = s * t - 7.73090512675594117e-03lf;
    s = s * t + 3.91339722512067044e-1lf;
    return s;
}

fn i0_near_zero_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 1.0lf;
    var s = 1.55917222555109246e-14lf;
    s = s * t + 2.5398791970311192e-12lf;
    s = s * t + 3.27324784353647008e-10lf;
    s = s * t + 3.23622735237653793e-08lf;
    s = s * t + 2.35757898789382156e-06lf;
    s = s * t + 1.19820685816344099e-04lf;
    s = s * t + 3.92856510563680845e-03lf;
    s = s * t + 7.35898683610533491e-02lf;
    s = s * t + 6.35861728156068555e-1lf;
    s = s * t + 1.56608292975635054lf;
    return s;
}

fn i1_near_zero_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 1.0lf;
    var s = 1.40326378864295364e-13lf;
    s = s * t + 2.03192275923847676e-11lf;
    s = s * t + 2.29127348893804084e-09lf;
    s = s * t + 1.94173640851568072e-07lf;
    s = s * t + 1.17878949394699314e-05lf;
    s = s * t + 4.79282743265497656e-04lf;
    s = s * t + 1.17856953169104252e-02lf;
    s = s * t + 1.47179736722106686e-1lf;
    s = s * t + 6.35861728156068555e-1lf;
    return s;
}

fn k0_small_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 1.0lf;
    var s = 3.5186315158547223e-14lf;
    s = s * t + 5.4525646627725857e-12lf;
    s = s * t + 6.62301327279445242e-10lf;
    s = s * t + 6.09336189417211383e-08lf;
    s = s * t + 4.054506619949891e-06lf;
    s = s * t + 1.82805558279155401e-04lf;
    s = s * t + 5.05339264319609224e-03lf;
    s = s * t + 7.17770103424050959e-02lf;
    s = s * t + 3.40497321013380592e-1lf;
    s = s * t - 3.03620772915755471e-1lf;
    return s;
}

fn k1_small_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 1.0lf;
    var s = -6.21427161732957679e-13lf;
    s = s * t - 8.53363416857514113e-11lf;
    s = s * t - 9.03212750174067852e-09lf;
    s = s * t - 7.08113369151740771e-07lf;
    s = s * t - 3.89186906437163317e-05lf;
    s = s * t - 1.38316884661811609e-03lf;
    s = s * t - 2.78542352197718428e-02lf;
    s = s * t - 2.43838528867743302e-1lf;
    s = s * t - 3.32240955240313085e-1lf;
    s = s * t + 8.85088287729589345e-1lf;
    return s;
}

fn k0e_large_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = 1.09269835372687348e-10lf;
    s = s * t - 1.75975288091957069e-10lf;
    s = s * t - 3.119936129682105e-10lf;
    s = s * t + 4.39272600021076324e-10lf;
    s = s * t + 8.13391320546411457e-10lf;
    s = s * t - 1.23669232770962879e-09lf;
    s = s * t + 4.75754470577637419e-11lf;
    s = s * t - 6.64387863184323432e-10lf;
    s = s * t + 3.80839985991904293e-09lf;
    s = s * t - 8.02520560490447598e-09lf;
    s = s * t + 1.70475358842496961e-08lf;
    s = s * t - 4.10567387249153642e-08lf;
    s = s * t + 1.02954317593911996e-07lf;
    s = s * t - 2.68975986553958376e-07lf;
    s = s * t + 7.42780123219009592e-07lf;
    s = s * t - 2.19116738374178652e-06lf;
    s = s * t + 7.00224564575565101e-06lf;
    s = s * t - 2.47352054284897196e-05lf;
    s = s * t + 9.95605474202941897e-05lf;
    s = s * t - 4.79769056732884389e-04lf;
    s = s * t + 3.03289181027532063e-03lf;
    s = s * t - 3.10714618248898969e-02lf;
    s = s * t + 1.21859533851339053lf;
    return s;
}

fn k1e_large_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = -1.19316683931121581e-10lf;
    s = s * t + 1.9273808087540516e-10lf;
    s = s * t + 3.38678041678080041e-10lf;
    s = s * t - 4.77441121785095e-10lf;
    s = s * t - 8.90859671092390567e-10lf;
    s = s * t + 1.36158594044606471e-09lf;
    s = s * t - 8.33622719599145653e-11lf;
    s = s * t + 7.96624279850409418e-10lf;
    s = s * t - 4.33193998565862918e-09lf;
    s = s * t + 9.21389402028953256e-09lf;
    s = s * t - 1.98175771415911146e-08lf;
    s = s * t + 4.81543467908547775e-08lf;
    s = s * t - 1.22031863519384035e-07lf;
    s = s * t + 3.23056719885393422e-07lf;
    s = s * t - 9.06708763337139326e-07lf;
    s = s * t + 2.73003010435272163e-06lf;
    s = s * t - 8.96120738775002518e-06lf;
    s = s * t + 3.28438665023559564e-05lf;
    s = s * t - 1.39590219562722241e-04lf;
    s = s * t + 7.35724154871838546e-04lf;
    s = s * t - 5.56672988007458825e-03lf;
    s = s * t + 1.03349737753865641e-1lf;
    s = s * t + 1.36315189037134197lf;
    return s;
}

fn bessel_i0e_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    let a = abs(x);
    if a <= 4.0lf {
        return i0e_small_f64(a);
    }
    if a <= 10.0lf {
        return i0e_middle_f64(a);
    }
    if is_inf_f64(x) {
        return 0.0lf;
    }
    return i0e_large_f64(10.0lf / a) / sqrt(a);
}

fn bessel_i1e_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    let a = abs(x);
    if a <= 4.0lf {
        return x * i1e_small_f64(a);
    }
    if is_inf_f64(x) {
        return copy_sign_f64(0.0lf, x);
    }
    if a <= 10.0lf {
        return copy_sign_f64(i1e_middle_f64(a), x);
    }
    return copy_sign_f64(i1e_large_f64(10.0lf / a) / sqrt(a), x);
}

// scaled * exp(a), where the exponential alone may overflow.
fn unscale_f64(scaled: f64, a: f64) -> f64 {
    if a < 80.0lf {
        return scaled * exp_f64(a);
    }
    let half = exp_f64(0.5lf * a);
    return (scaled * half) * half;
}

// NaN at the infinities, as in TensorFlow.
fn bessel_i0_f64(x: f64) -> f64 {
    if !is_finite_f64(x) {
        return nan_like_f64(x);
    }
    return unscale_f64(bessel_i0e_f64(x), abs(x));
}

fn bessel_i1_f64(x: f64) -> f64 {
    if !is_finite_f64(x) {
        return nan_like_f64(x);
    }
    return unscale_f64(bessel_i1e_f64(x), abs(x));
}

// K of 0 < x <= 2.
fn k0_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    return k0_small_f64(z) - log_f64(0.5lf * x) * i0_near_zero_f64(z);
}

fn k1_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    return k1_small_f64(z) / x + log_f64(0.5lf * x) * (x * i1_near_zero_f64(z));
}

// Infinite for x <= 0, as in TensorFlow; so are the other functions of the second kind.
fn bessel_k0e_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if x <= 0.0lf {
        return infinity_like_f64(1.0lf);
    }
    if x <= 2.0lf {
        return k0_near_zero_f64(x) * exp_f64(x);
    }
    return select(k0e_large_f64(2.0lf / x) / sqrt(x), 0.0lf, is_inf_f64(x));
}

fn bessel_k0_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if x <= 0.0lf {
        return infinity_like_f64(1.0lf);
    }
    if x <= 2.0lf {
        return k0_near_zero_f64(x);
    }
    return select(k0e_large_f64(2.0lf / x) / sqrt(x) * exp_f64(-x), 0.0lf, is_inf_f64(x));
}

fn bessel_k1e_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    // Subnormal numbers count as 0.
    if x < 2.2250738585072014e-308lf {
        return infinity_like_f64(1.0lf);
    }
    if x <= 2.0lf {
        return k1_near_zero_f64(x) * exp_f64(x);
    }
    return select(k1e_large_f64(2.0lf / x) / sqrt(x), 0.0lf, is_inf_f64(x));
}

fn bessel_k1_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    // Subnormal numbers count as 0.
    if x < 2.2250738585072014e-308lf {
        return infinity_like_f64(1.0lf);
    }
    if x <= 2.0lf {
        return k1_near_zero_f64(x);
    }
    return select(k1e_large_f64(2.0lf / x) / sqrt(x) * exp_f64(-x), 0.0lf, is_inf_f64(x));
}
