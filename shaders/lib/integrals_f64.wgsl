// requires: exp_f64 log_f64
// Dawson's integral, the exponential integral Ei, Fresnel's integrals and Spence's function. The polynomials are fits of our own at Chebyshev
// nodes, in t from -1 to 1. Errors are relative, but for Ei near its zero at 0.3725.

fn dawsn_small_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 1.0lf;
    var s = 1.25783147216922226e-12lf;
    s = s * t - 1.17007515314207736e-11lf;
    s = s * t + 9.73671110114104704e-11lf;
    s = s * t - 8.06263500439689804e-10lf;
    s = s * t + 6.2854982744520707e-09lf;
    s = s * t - 4.57994142701068588e-08lf;
    s = s * t + 3.10937709046013802e-07lf;
    s = s * t - 1.95661071797832994e-06lf;
    s = s * t + 1.13415012887950271e-05lf;
    s = s * t - 6.01230194092507386e-05lf;
    s = s * t + 2.88999853441614632e-04lf;
    s = s * t - 1.24669564474053489e-03lf;
    s = s * t + 4.76580489907269058e-03lf;
    s = s * t - 1.58912360641945403e-02lf;
    s = s * t + 4.52947205434805986e-02lf;
    s = s * t - 1.07479751605850015e-1lf;
    s = s * t + 2.04979875829127567e-1lf;
    s = s * t - 2.99985093206761166e-1lf;
    s = s * t + 3.19994037282704463e-1lf;
    return s;
}

fn dawsn_middle_f64(v: f64) -> f64 {
    let t = v * 1.33333333333333333lf - 3.66666666666666667lf;
    var s = -1.40667535927531631e-11lf;
    s = s * t + 5.17998358375151902e-11lf;
    s = s * t + 1.30541603597864598e-10lf;
    s = s * t - 1.35454607347348438e-09lf;
    s = s * t + 2.72737258522886763e-09lf;
    s = s * t + 1.0470444479007043e-08lf;
    s = s * t - 7.70010255832746427e-08lf;
    s = s * t + 1.42728821989157357e-07lf;
    s = s * t + 4.34764625934653909e-07lf;
    s = s * t - 3.24344622720848764e-06lf;
    s = s * t + 7.25520717292663506e-06lf;
    s = s * t + 5.11126949830954639e-06lf;
    s = s * t - 8.3232069235295258e-05lf;
    s = s * t + 2.6429409803707394e-04lf;
    s = s * t - 3.77205864155583986e-04lf;
    s = s * t - 2.61408441460892266e-04lf;
    s = s * t + 2.97026222724033624e-03lf;
    s = s * t - 9.72914620449784298e-03lf;
    s = s * t + 2.51126037196495309e-02lf;
    s = s * t - 6.61351570933874109e-02lf;
    s = s * t + 1.97850947174154524e-1lf;
    return s;
}

fn dawsn_wide_f64(v: f64) -> f64 {
    let t = v * 0.8lf - 3.8lf;
    var s = 1.14135061311156035e-11lf;
    s = s * t - 2.35173309872347066e-12lf;
    s = s * t - 1.45576620102887746e-10lf;
    s = s * t + 3.43814056197209401e-10lf;
    s = s * t - 1.37804794069673836e-10lf;
    s = s * t - 1.1367418452715332e-09lf;
    s = s * t + 4.8623098172612494e-09lf;
    s = s * t - 1.26632850975111097e-08lf;
    s = s * t + 2.19594461434684059e-08lf;
    s = s * t - 1.79846625853876534e-08lf;
    s = s * t - 3.72515862120285224e-08lf;
    s = s * t + 2.2178107074069589e-07lf;
    s = s * t - 6.87720238954477791e-07lf;
    s = s * t + 1.76182292512962237e-06lf;
    s = s * t - 4.27417496730442581e-06lf;
    s = s * t + 1.06040024759300872e-05lf;
    s = s * t - 2.79855813437907193e-05lf;
    s = s * t + 7.91989668639447841e-05lf;
    s = s * t - 2.3826837231452216e-04lf;
    s = s * t + 7.53357798096749358e-04lf;
    s = s * t - 2.48153023704020037e-03lf;
    s = s * t + 8.46551691920038359e-03lf;
    s = s * t - 2.97866952654033848e-02lf;
    s = s * t + 1.07771511180244496e-1lf;
    return s;
}

fn dawsn_large_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = 5.8889234751529604e-14lf;
    s = s * t + 1.90740295623878085e-13lf;
    s = s * t + 5.72181102656546879e-13lf;
    s = s * t + 3.0540011315446517e-12lf;
    s = s * t + 1.89993483711790534e-11lf;
    s = s * t + 1.36708904787414384e-10lf;
    s = s * t + 1.18557229054046289e-09lf;
    s = s * t + 1.26518822932532416e-08lf;
    s = s * t + 1.71328476329742293e-07lf;
    s = s * t + 3.09031390839126181e-06lf;
    s = s * t + 8.06920987932531221e-05lf;
    s = s * t + 3.62496381788722073e-03lf;
    s = s * t + 5.03547202291159264e-1lf;
    return s;
}

fn expint_small_f64(v: f64) -> f64 {
    let t = v * 1.0lf - 1.0lf;
    var s = 1.99175687462905044e-12lf;
    s = s * t + 2.98008797687615481e-11lf;
    s = s * t + 4.09557396606152594e-10lf;
    s = s * t + 5.30172186487186822e-09lf;
    s = s * t + 6.33231610012250967e-08lf;
    s = s * t + 6.92744113676087972e-07lf;
    s = s * t + 6.88389410244766429e-06lf;
    s = s * t + 6.1505895750952053e-05lf;
    s = s * t + 4.87937920500419663e-04lf;
    s = s * t + 3.38319921395453172e-03lf;
    s = s * t + 2.00933150811486286e-02lf;
    s = s * t + 9.96203229953571685e-02lf;
    s = s * t + 4.00379677004641347e-1lf;
    s = s * t + 1.31790215145440391lf;
    return s;
}

fn expint_2_f64(v: f64) -> f64 {
    let t = v * 1.0lf - 3.0lf;
    var s = -1.8023873393812664e-11lf;
    s = s * t + 6.03631389915085984e-11lf;
    s = s * t - 1.18842956430249092e-10lf;
    s = s * t + 4.30368175933150299e-10lf;
    s = s * t - 1.7536336538432965e-09lf;
    s = s * t + 6.44856655499159346e-09lf;
    s = s * t - 2.42562044921179618e-08lf;
    s = s * t + 9.57892099608017065e-08lf;
    s = s * t - 3.9501053658987714e-07lf;
    s = s * t + 1.68502716277359705e-06lf;
    s = s * t - 7.18502140007532937e-06lf;
    s = s * t + 2.84850434511502373e-05lf;
    s = s * t - 9.08548390629483094e-05lf;
    s = s * t + 1.34052375193761879e-04lf;
    s = s * t + 8.35532615120455763e-04lf;
    s = s * t - 8.26167104391384879e-03lf;
    s = s * t + 3.70370370370346843e-02lf;
    s = s * t - 8.60451326590106998e-02lf;
    s = s * t + 1.08471973027175622e-02lf;
    s = s * t + 1.48372920404592369lf;
    return s;
}

fn expint_4_f64(v: f64) -> f64 {
    let t = v * 0.5lf - 3.0lf;
    var s = 1.72603844269902151e-11lf;
    s = s * t - 6.01761346199826969e-11lf;
    s = s * t + 1.28174785039828406e-10lf;
    s = s * t - 4.98303917325461157e-10lf;
    s = s * t + 2.1593084426170426e-09lf;
    s = s * t - 8.47692879639500885e-09lf;
    s = s * t + 3.28122997483268363e-08lf;
    s = s * t - 1.22641335867559431e-07lf;
    s = s * t + 4.14785167764874922e-07lf;
    s = s * t - 1.1330595697334771e-06lf;
    s = s * t + 1.59832416318877618e-06lf;
    s = s * t + 6.70759419214666598e-06lf;
    s = s * t - 7.0928020594169168e-05lf;
    s = s * t + 3.70479726727244296e-04lf;
    s = s * t - 1.37174211258640308e-03lf;
    s = s * t + 3.65454447222334448e-03lf;
    s = s * t - 5.92704334799197398e-03lf;
    s = s * t - 7.37388474529753931e-04lf;
    s = s * t + 3.85118139860819908e-02lf;
    s = s * t - 1.31473100815935933e-1lf;
    s = s * t + 1.27888386048956162lf;
    return s;
}

fn expint_8_f64(v: f64) -> f64 {
    let t = v * 0.25lf - 3.0lf;
    var s = -3.44104350086657975e-11lf;
    s = s * t + 1.12215483300920111e-10lf;
    s = s * t - 1.54113012916494187e-10lf;
    s = s * t + 2.88581248759822036e-10lf;
    s = s * t - 2.71182310723934848e-10lf;
    s = s * t - 3.74317652766288237e-09lf;
    s = s * t + 2.91774796825701561e-08lf;
    s = s * t - 1.42651062346712216e-07lf;
    s = s * t + 5.629862163775603e-07lf;
    s = s * t - 1.88160264318597131e-06lf;
    s = s * t + 5.33025732233100751e-06lf;
    s = s * t - 1.23812925598111057e-05lf;
    s = s * t + 2.10271164652785859e-05lf;
    s = s * t - 1.22760886081982183e-05lf;
    s = s * t - 8.36216069142515857e-05lf;
    s = s * t + 4.49953797183833105e-04lf;
    s = s * t - 1.47329020256856584e-03lf;
    s = s * t + 3.86836871971441828e-03lf;
    s = s * t - 8.98154443925643303e-03lf;
    s = s * t + 1.98302993783926888e-02lf;
    s = s * t - 4.42399979914499483e-02lf;
    s = s * t + 1.10297454490675908lf;
    return s;
}

fn expint_16_f64(v: f64) -> f64 {
    let t = v * 4.0lf - 3.0lf;
    var s = -1.3345317658623593e-12lf;
    s = s * t - 8.84678825145716034e-12lf;
    s = s * t + 3.27127797720599961e-11lf;
    s = s * t + 8.19061752218074621e-11lf;
    s = s * t - 4.22488330032283326e-10lf;
    s = s * t - 5.00205152578168349e-10lf;
    s = s * t + 4.36554242711387642e-09lf;
    s = s * t + 5.47221744626424413e-09lf;
    s = s * t - 3.9387662109890177e-08lf;
    s = s * t - 1.19456267278834956e-07lf;
    s = s * t + 8.08853217930423719e-08lf;
    s = s * t + 1.59132697247957744e-06lf;
    s = s * t + 8.99266764340167496e-06lf;
    s = s * t + 6.52797448850383366e-05lf;
    s = s * t + 8.27764331353286996e-04lf;
    s = s * t + 1.93989495624102358e-02lf;
    s = s * t + 1.05204246796822451lf;
    return s;
}

fn expint_large_f64(v: f64) -> f64 {
    let t = v * 2.0lf - 1.0lf;
    var s = -5.18840957468264759e-13lf;
    s = s * t + 1.36411331546586669e-13lf;
    s = s * t + 4.02305059295317618e-12lf;
    s = s * t + 6.18025734154096536e-12lf;
    s = s * t + 8.37094348741987652e-12lf;
    s = s * t + 3.28204854208347021e-11lf;
    s = s * t + 1.40841798772751754e-10lf;
    s = s * t + 6.60607079393803789e-10lf;
    s = s * t + 3.71654120907480293e-09lf;
    s = s * t + 2.52642080482636317e-08lf;
    s = s * t + 2.10412155371050533e-07lf;
    s = s * t + 2.20005090188740935e-06lf;
    s = s * t + 2.9987684211653439e-05lf;
    s = s * t + 5.66832598941034447e-04lf;
    s = s * t + 1.66765801424953431e-02lf;
    s = s * t + 1.01613772349432534lf;
    return s;
}

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

fn spence_series_f64(v: f64) -> f64 {
    let t = v * 2.0lf + 0.0lf;
    var s = 4.45139794839158238e-10lf;
    s = s * t - 9.02004234450652267e-10lf;
    s = s * t - 8.36596902414641034e-10lf;
    s = s * t + 1.44216095836892022e-09lf;
    s = s * t + 4.59852546879584198e-09lf;
    s = s * t - 9.11691910686127577e-09lf;
    s = s * t + 7.73249866398153549e-09lf;
    s = s * t - 1.87882529939446455e-08lf;
    s = s * t + 5.4971930737763799e-08lf;
    s = s * t - 1.22609421301971481e-07lf;
    s = s * t + 2.70139497407126473e-07lf;
    s = s * t - 6.21184535334858924e-07lf;
    s = s * t + 1.44501604237223368e-06lf;
    s = s * t - 3.39135839920386813e-06lf;
    s = s * t + 8.07067143046083506e-06lf;
    s = s * t - 1.95311432984200644e-05lf;
    s = s * t + 4.82253225741100118e-05lf;
    s = s * t - 1.2207032607377804e-04lf;
    s = s * t + 3.18877549782870637e-04lf;
    s = s * t - 8.68055554591496206e-04lf;
    s = s * t + 2.50000000005696856e-03lf;
    s = s * t - 7.81250000003168542e-03lf;
    s = s * t + 2.77777777777767494e-02lf;
    s = s * t - 1.24999999999999692e-1lf;
    s = s * t + 1.0lf;
    return s;
}

fn dawsn_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    let a = abs(x);
    var y: f64;
    if a <= 2.0lf {
        return x * dawsn_small_f64(a * a);
    } else if a <= 3.5lf {
        y = dawsn_middle_f64(a);
    } else if a <= 6.0lf {
        y = dawsn_wide_f64(a);
    } else if is_inf_f64(x) {
        y = 0.0lf;
    } else {
        let w = 6.0lf / a;
        y = dawsn_large_f64(w * w) / a;
    }
    return copy_sign_f64(y, x);
}

// NaN for x < 0 and for infinity, as TensorFlow has it.
fn expint_f64(x: f64) -> f64 {
    if !(x >= 0.0lf) || is_inf_f64(x) {
        return nan_like_f64(x);
    }
    if x == 0.0lf {
        return infinity_like_f64(-1.0lf);
    }
    if x <= 2.0lf {
        return x * expint_small_f64(x) + (0.577215664901532861lf + log_f64(x));
    }
    var y: f64;
    if x <= 4.0lf {
        y = expint_2_f64(x);
    } else if x <= 8.0lf {
        y = expint_4_f64(x);
    } else if x <= 16.0lf {
        y = expint_8_f64(x);
    } else if x <= 32.0lf {
        y = expint_16_f64(16.0lf / x);
    } else {
        y = expint_large_f64(32.0lf / x);
        // The exponential alone may overflow.
        let half = exp_f64(0.5lf * x);
        return y / x * half * half;
    }
    return y / x * exp_f64(x);
}

// Sine and cosine of pi x^2 / 2 for 0 <= x < 1e15, where every quarter turn counts: x is cut in two, whose squares and product are exact.
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

// The dilogarithm of 1 - x. NaN for x < 0 and for infinity, as TensorFlow has it.
fn spence_f64(x: f64) -> f64 {
    if !(x >= 0.0lf) || is_inf_f64(x) {
        return nan_like_f64(x);
    }
    if x == 0.0lf {
        return 1.64493406684822644lf;
    }
    // Inversion, then reflection, until the argument is between 1 / 2 and 3 / 2.
    var z = x;
    if x > 1.5lf {
        z = 1.0lf / x;
    }
    var y: f64;
    if z < 0.5lf {
        y = 1.64493406684822644lf - log_f64(z) * log1p_f64(-z) - z * spence_series_f64(-z);
    } else {
        // x - 1 without the error of 1 / x.
        let w = select(z - 1.0lf, (1.0lf - x) / x, x > 1.5lf);
        y = -w * spence_series_f64(w);
    }
    if x > 1.5lf {
        let l = log_f64(x);
        y = -0.5lf * l * l - y;
    }
    return y;
}
