// The functions of <complex.h> that Wine's ucrtbase.dll lacks, and TensorFlow and NumPy for Windows import.
//
// The types are Microsoft's, structures of two numbers, passed as such; a long double is a double
// there. The computations are mingw's.

#include <complex.h>

typedef struct {
    double re, im;
} Double;
typedef struct {
    float re, im;
} Float;

static double complex wide(Double z) { return z.re + z.im * I; }
static float complex narrow(Float z) { return z.re + z.im * I; }
static Double double_of(double complex z) { return (Double){creal(z), cimag(z)}; }
static Float float_of(float complex z) { return (Float){crealf(z), cimagf(z)}; }

#define FUNCTION(name)                                                                             \
    Double shim_##name(Double z) { return double_of(name(wide(z))); }                              \
    Double shim_##name##l(Double z) { return double_of(name(wide(z))); }                           \
    Float shim_##name##f(Float z) { return float_of(name##f(narrow(z))); }

#define PART(name)                                                                                 \
    double shim_##name(Double z) { return name(wide(z)); }                                         \
    double shim_##name##l(Double z) { return name(wide(z)); }                                      \
    float shim_##name##f(Float z) { return name##f(narrow(z)); }

FUNCTION(ccos)
FUNCTION(ccosh)
FUNCTION(cexp)
FUNCTION(csin)
FUNCTION(csinh)
FUNCTION(ctan)
FUNCTION(ctanh)
PART(cabs)
PART(carg)
PART(cimag)
PART(creal)

Double shim_cpow(Double z, Double w) { return double_of(cpow(wide(z), wide(w))); }
Double shim_cpowl(Double z, Double w) { return double_of(cpow(wide(z), wide(w))); }
Float shim_cpowf(Float z, Float w) { return float_of(cpowf(narrow(z), narrow(w))); }
Float shim__FCbuild(float re, float im) { return (Float){re, im}; }
Double shim__LCbuild(double re, double im) { return (Double){re, im}; }
