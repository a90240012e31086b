"""The signature of a Mach-O file, which linkers write without a key.

A directory holds a hash of each page of the code. macOS on Apple's processors ends a process as
soon as a page does not match its hash, for instance if a file was changed after linking. The format
is that of Apple's `cs_blobs.h`; all numbers are big-endian.
"""

from __future__ import annotations

import hashlib
import struct

SUPER_BLOB, CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
#: A flag of the directory: the signature holds no certificate, so no identity vouches for the code.
AD_HOC = 2
SHA256 = 2


def problems(code: bytes, signature: bytes) -> list[str]:
    """The problems of the signature of a file; `code` is everything before the signature."""
    try:
        return directory_problems(code, directory(signature))
    except struct.error:
        return ["its signature is cut off"]


def directory(signature: bytes) -> bytes:
    """The directory of the code, the first blob of a signature."""
    magic, _, count = struct.unpack_from(">III", signature)
    if magic != SUPER_BLOB:
        return b""
    for number in range(count):
        _, offset = struct.unpack_from(">II", signature, 12 + 8 * number)
        magic, length = struct.unpack_from(">II", signature, offset)
        if magic == CODE_DIRECTORY:
            return signature[offset : offset + length]
    return b""


def directory_problems(code: bytes, found: bytes) -> list[str]:
    """The problems of the directory."""
    if not found:
        return ["its signature holds no directory of the code"]
    flags, hashes, _, _, slots, limit = struct.unpack_from(">IIIIII", found, 12)
    size, kind, _, page = struct.unpack_from(">BBBB", found, 36)
    if not flags & AD_HOC:
        return ["its signature is of a kind that is not known here"]
    if (size, kind) != (32, SHA256):
        return ["the hashes of its signature are not SHA-256"]
    pages = range(0, limit, 1 << page)
    if limit != len(code) or slots != len(pages) or hashes + size * slots > len(found):
        return [f"its signature covers {limit} bytes in {slots} pages, not {len(code)} bytes"]
    wrong = 0
    for number, start in enumerate(pages):
        hashed = hashlib.sha256(code[start : min(start + (1 << page), limit)]).digest()
        wrong += hashed != found[hashes + size * number : hashes + size * (number + 1)]
    return [f"{wrong} of {slots} pages are not what was signed"] if wrong else []
