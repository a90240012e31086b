//! The part of ELF that loading drivers needs: the list of libraries that a library needs, and the
//! image of a library that only comes first in a search order.
//!
//! 64 bits, in the byte order of this machine. The functions are pure: bytes in, bytes out.

/// Sizes of the structs Ehdr, Phdr, Dyn and Sym.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const DYNAMIC: usize = 16;
const SYMBOL: usize = 24;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_STACK: u32 = 0x6474_e551;
const DT_NEEDED: u64 = 1;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
/// The section of symbols whose value is an absolute address, independent of the library's base.
const SHN_ABS: u16 = 0xfff1;
const READ_WRITE: u32 = 6;

/// The class and byte order of this machine, as files state them.
const IDENTIFICATION: [u8; 7] =
    [0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }, 1];

/// The libraries that a library needs. `read` returns bytes of its file at an offset, fewer at the
/// file's end. None if it is no library for this machine.
pub(super) fn needed(read: &dyn Fn(u64, usize) -> Vec<u8>) -> Option<Vec<String>> {
    let header = read(0, HEADER);
    if header.len() < HEADER || !header.starts_with(&IDENTIFICATION) {
        return None;
    }
    let (size, count) = (u16_at(&header, 54)?, u16_at(&header, 56)?);
    let table = read(u64_at(&header, 32)?, usize::from(size) * usize::from(count));
    let segments: Vec<&[u8]> = table.chunks_exact(usize::from(size).max(SEGMENT)).collect();
    let of_kind = |kind: u32| segments.iter().filter(move |s| u32_at(s, 0) == Some(kind));
    let dynamic = of_kind(PT_DYNAMIC).next()?;
    let dynamic =
        read(u64_at(dynamic, 8)?, usize::try_from(u64_at(dynamic, 32)?).ok()?.min(1 << 16));
    let entries: Vec<(u64, u64)> = dynamic
        .chunks_exact(DYNAMIC)
        .filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)))
        .take_while(|(tag, _)| *tag != 0)
        .collect();
    let address = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?.1;
    // The segment that holds the strings gives their offset in the file.
    let strings = of_kind(PT_LOAD).find_map(|segment| {
        let within = address.checked_sub(u64_at(segment, 16)?)?;
        (within < u64_at(segment, 32)?).then(|| u64_at(segment, 8)?.checked_add(within))?
    })?;
    let name = |at: u64| {
        let text = read(strings.checked_add(at)?, 4096);
        let end = text.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&text[..end]).into_owned())
    };
    entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).map(|(_, at)| name(*at)).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A shared library without code that needs `library` and defines `symbols` as the addresses given.
pub(super) fn leader(library: &[u8], symbols: &[(&str, u64)]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut string = |text: &[u8]| {
        let at = strings.len();
        strings.extend_from_slice(text);
        strings.push(0);
        at
    };
    let needed = string(library) as u64;
    // The first symbol is the null symbol.
    let mut table = vec![0; SYMBOL];
    for (name, address) in symbols {
        table.extend((string(name.as_bytes()) as u32).to_ne_bytes());
        // A global function of default visibility.
        table.extend([0x12, 0]);
        table.extend(SHN_ABS.to_ne_bytes());
        table.extend(address.to_ne_bytes());
        table.extend(0_u64.to_ne_bytes());
    }
    let hashes = hash_table(symbols);
    let dynamic_at = HEADER + 3 * SEGMENT;
    let table_at = dynamic_at + 7 * DYNAMIC;
    let hashes_at = table_at + table.len();
    let strings_at = hashes_at + hashes.len();
    let end = strings_at + strings.len();

    let mut image = Vec::with_capacity(end);
    image.extend(IDENTIFICATION);
    image.resize(16, 0);
    // A shared object (type 3) for this machine; its version.
    image.extend([3_u16, MACHINE].map(u16::to_ne_bytes).concat());
    image.extend(1_u32.to_ne_bytes());
    // No entry point, segments behind the header, no sections; no flags.
    image.extend([0, HEADER as u64, 0].map(u64::to_ne_bytes).concat());
    image.extend(0_u32.to_ne_bytes());
    image.extend([HEADER as u16, SEGMENT as u16, 3, 0, 0, 0].map(u16::to_ne_bytes).concat());
    // The loader writes into the dynamic section. Without the last segment it would request an
    // executable stack.
    for (kind, at, length, align) in [
        (PT_LOAD, 0, end, 1 << 16),
        (PT_DYNAMIC, dynamic_at, 7 * DYNAMIC, 8),
        (PT_GNU_STACK, 0, 0, 16),
    ] {
        image.extend([kind, READ_WRITE].map(u32::to_ne_bytes).concat());
        image
            .extend([at, at, at, length, length, align].map(|n| (n as u64).to_ne_bytes()).concat());
    }
    for (tag, value) in [
        (DT_NEEDED, needed),
        (DT_HASH, hashes_at as u64),
        (DT_SYMTAB, table_at as u64),
        (DT_SYMENT, SYMBOL as u64),
        (DT_STRTAB, strings_at as u64),
        (DT_STRSZ, strings.len() as u64),
        (0, 0),
    ] {
        image.extend([tag, value].map(u64::to_ne_bytes).concat());
    }
    for part in [table, hashes, strings] {
        image.extend(part);
    }
    image
}

/// The DT_HASH table of `symbols`, whose indices begin with 1.
fn hash_table(symbols: &[(&str, u64)]) -> Vec<u8> {
    let buckets = symbols.len().max(1);
    let mut heads = vec![0_u32; buckets];
    let mut chain = vec![0_u32; symbols.len() + 1];
    for (i, (name, _)) in (1_u32..).zip(symbols) {
        let head = &mut heads[hash(name) as usize % buckets];
        chain[i as usize] = std::mem::replace(head, i);
    }
    let lengths = [buckets as u32, chain.len() as u32];
    let table: Vec<u8> =
        lengths.into_iter().chain(heads).chain(chain).flat_map(u32::to_ne_bytes).collect();
    // Strings follow the table, so only its own end need be aligned.
    table
}

/// The System V ABI's hash of a name.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

/// The number of this machine in ELF files.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else if cfg!(target_arch = "loongarch64") {
    258
} else if cfg!(target_arch = "powerpc64") {
    21
} else if cfg!(target_arch = "s390x") {
    22
} else {
    0
};

#[cfg(test)]
mod tests {
    use super::*;

    fn needed_by(image: &[u8]) -> Option<Vec<String>> {
        needed(&|at, len| {
            let rest = usize::try_from(at).ok().and_then(|at| image.get(at..)).unwrap_or_default();
            rest[..len.min(rest.len())].to_vec()
        })
    }

    #[test]
    fn a_leader_needs_its_library() {
        let image = leader(b"/opt/lib driver.so", &[("malloc", 0x1234), ("free", 0x5678)]);
        assert_eq!(needed_by(&image).unwrap(), ["/opt/lib driver.so"]);
    }

    #[test]
    fn a_real_library_needs_libc() {
        let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(needed_by(&image).unwrap().iter().any(|name| name.starts_with("libc.so")));
    }

    #[test]
    fn anything_else_is_no_library() {
        assert_eq!(needed_by(b""), None);
        assert_eq!(needed_by(b"INPUT(libdriver.so)"), None);
        let image = leader(b"driver.so", &[]);
        // Neither a cut nor a changed byte causes an access outside of the file.
        for n in 0..image.len() {
            let _ = needed_by(&image[..n]);
            for mask in [0x80, 0xff] {
                let mut changed = image.clone();
                changed[n] ^= mask;
                let _ = needed_by(&changed);
            }
        }
    }
}
