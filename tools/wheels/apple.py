"""The part of a macOS SDK that the linker reads, written from a list of names.

For each library of the system an SDK has a text file (.tbd) with the path of the library and the
names that it exports; the libraries themselves are part of macOS. zig includes the text file of
libSystem. The others are here, with the names that the plug-in imports, or may import. The linker
refuses a name that is missing here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Library(NamedTuple):
    """A library of macOS."""

    #: Its path on macOS.
    path: str
    #: The oldest version that it is compatible with, from its own file.
    compatible: str
    #: The names that the plug-in imports, as in C, separated by blanks.
    names: str

    @property
    def stub(self) -> str:
        """The path of the text file in an SDK."""
        folder, _, name = self.path.rpartition("/")
        if folder == "/usr/lib":
            return f"usr/lib/{name.partition('.')[0]}.tbd"
        return f"System/Library/Frameworks/{name}.framework/{name}.tbd"


FRAMEWORKS = "/System/Library/Frameworks"
LIBRARIES = (
    Library(
        "/usr/lib/libobjc.A.dylib",
        "1",
        "class_addIvar class_addMethod class_addProtocol class_conformsToProtocol"
        " class_copyIvarList class_copyMethodList class_copyProtocolList"
        " class_getClassMethod class_getInstanceMethod class_getInstanceSize"
        " class_getInstanceVariable class_getMethodImplementation class_getName"
        " class_getSuperclass class_isMetaClass class_respondsToSelector ivar_getName"
        " ivar_getOffset ivar_getTypeEncoding method_copyArgumentType method_copyReturnType"
        " method_getImplementation method_getName method_getNumberOfArguments"
        " method_getTypeEncoding method_setImplementation objc_alloc objc_allocWithZone"
        " objc_allocateClassPair objc_autorelease objc_autoreleasePoolPop"
        " objc_autoreleasePoolPush objc_autoreleaseReturnValue objc_begin_catch"
        " objc_constructInstance objc_copyClassList objc_copyProtocolList objc_copyWeak"
        " objc_destroyWeak objc_disposeClassPair objc_end_catch objc_exception_rethrow"
        " objc_exception_throw objc_getClass objc_getProtocol objc_initWeak objc_loadWeak"
        " objc_loadWeakRetained objc_lookUpClass objc_moveWeak objc_msgSend objc_msgSendSuper"
        " objc_opt_class objc_opt_isKindOfClass objc_opt_new objc_opt_respondsToSelector"
        " objc_opt_self objc_registerClassPair objc_registerProtocol objc_release objc_retain"
        " objc_retainAutorelease objc_retainAutoreleaseReturnValue"
        " objc_retainAutoreleasedReturnValue objc_retainBlock objc_storeStrong objc_storeWeak"
        " object_getClass object_setClass protocol_addMethodDescription protocol_addProtocol"
        " protocol_conformsToProtocol protocol_copyMethodDescriptionList"
        " protocol_copyProtocolList protocol_getName protocol_isEqual sel_getName sel_isEqual"
        " sel_registerName",
    ),
    Library(
        f"{FRAMEWORKS}/CoreFoundation.framework/Versions/A/CoreFoundation",
        "150",
        "CFDataGetBytePtr CFDataGetLength CFDateCreate CFDateGetAbsoluteTime CFEqual"
        " CFGetRetainCount CFHash CFRelease CFRetain CFURLGetFileSystemRepresentation"
        " CFURLGetString kCFAbsoluteTimeIntervalSince1970 kCFAllocatorDefault"
        " kCFRunLoopDefaultMode",
    ),
    Library(
        f"{FRAMEWORKS}/CoreGraphics.framework/Versions/A/CoreGraphics",
        "64",
        "CGColorSpaceCreateWithName kCGColorSpaceDisplayP3 kCGColorSpaceExtendedLinearSRGB"
        " kCGColorSpaceExtendedSRGB kCGColorSpaceSRGB",
    ),
    Library(
        f"{FRAMEWORKS}/Foundation.framework/Versions/C/Foundation",
        "300",
        "NSKeyValueChangeNewKey NSLocalizedDescriptionKey NSLog",
    ),
    Library(f"{FRAMEWORKS}/IOSurface.framework/Versions/A/IOSurface", "1", "IOSurfaceCreate"),
    Library(
        f"{FRAMEWORKS}/Metal.framework/Versions/A/Metal",
        "1",
        "MTLCopyAllDevices MTLCreateSystemDefaultDevice",
    ),
    Library(
        f"{FRAMEWORKS}/QuartzCore.framework/Versions/A/QuartzCore", "1.2", "CACurrentMediaTime"
    ),
)


def stub(library: Library) -> str:
    """The text file of a library, in the fourth version of the format."""
    symbols = ", ".join(f"_{name}" for name in library.names.split())
    return f"""--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '{library.path}'
compatibility-version: {library.compatible}
current-version: {library.compatible}
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ {symbols} ]
...
"""


def write_sdk(folder: Path) -> Path:
    """Writes the files into `folder`, to which SDKROOT must point."""
    for library in LIBRARIES:
        file = folder / library.stub
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stub(library), encoding="utf-8")
    return folder
