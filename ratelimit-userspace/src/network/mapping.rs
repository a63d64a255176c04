//! Array maps as memory: their entries are read and written without a system call, while the XDP program
//! does the same. The only unsafe code of userspace is here.

use std::{
    fmt, io,
    mem::size_of,
    ops::Deref,
    os::fd::AsFd as _,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use aya::maps::{MapData, MapError, MapType};
use ratelimit_common::{block_table, blocks, bucket_table, bucket_table::Cell};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// `BPF_F_MMAPABLE` of linux/bpf.h.
pub const MMAPABLE: u32 = 1 << 10;

/// The entries of an array map, in the process' memory.
pub struct Mapping<T> {
    start: NonNull<T>,
    len: usize,
}

/// A word of a map that is also written.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word(AtomicU64);

/// A word of a map that is only looked at: what would change it does nothing, and fails where it can.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Seen(AtomicU64);

/// What a map's entry may be taken for.
///
/// # Safety
///
/// The type consists of [`Word`]s alone if it is `WRITABLE`, of [`Seen`]s alone if it is not, and has no
/// padding.
pub unsafe trait Entry {
    /// Whether it is mapped for writing.
    const WRITABLE: bool;
}

/// Why a map cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// The kernel does not tell about it.
    #[error("failed to inspect it")]
    Inspect(#[source] MapError),
    /// It is not what is expected.
    #[error("it is not an array of entries of {expected} bytes that can be mapped")]
    Layout {
        /// Bytes of an entry.
        expected: usize,
    },
    /// The kernel does not map it.
    #[error("failed to map it")]
    Map(#[source] io::Error),
}

// SAFETY: it is a `Word`.
unsafe impl Entry for Word {
    const WRITABLE: bool = true;
}

// SAFETY: it is a `Seen`.
unsafe impl Entry for Seen {
    const WRITABLE: bool = false;
}

// SAFETY: arrays have no padding of their own.
unsafe impl<T: Entry, const N: usize> Entry for [T; N] {
    const WRITABLE: bool = T::WRITABLE;
}

// SAFETY: eight cells fill its alignment of 64.
unsafe impl<T: Entry> Entry for bucket_table::Set<T> {
    const WRITABLE: bool = T::WRITABLE;
}

// SAFETY: eight cells fill its alignment of 64.
unsafe impl<T: Entry> Entry for block_table::Set<T> {
    const WRITABLE: bool = T::WRITABLE;
}

// SAFETY: four cells fill its alignment of 32.
unsafe impl<T: Entry> Entry for block_table::Detail<T> {
    const WRITABLE: bool = T::WRITABLE;
}

// SAFETY: eight cells fill its alignment of 64.
unsafe impl<T: Entry> Entry for blocks::Runtime<T> {
    const WRITABLE: bool = T::WRITABLE;
}

// SAFETY: the memory belongs to no thread, and all of it is atomic.
unsafe impl<T: Entry> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Entry> Sync for Mapping<T> {}

// === impl Mapping ===

impl<T: Entry> Mapping<T> {
    /// Maps an array, which need not stay open.
    pub fn of(map: &MapData) -> Result<Self, MappingError> {
        let info = map.info().map_err(MappingError::Inspect)?;
        let size = size_of::<T>();
        let fits = info.map_type().is_ok_and(|kind| kind == MapType::Array)
            && info.map_flags() & MMAPABLE != 0
            && info.value_size() as usize == size
            && size.is_multiple_of(8);
        if !fits {
            return Err(MappingError::Layout { expected: size });
        }
        let len = info.max_entries() as usize;
        let protection = if T::WRITABLE { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses a place that nothing else uses.
        let start =
            unsafe { mmap(ptr::null_mut(), len * size, protection, MapFlags::SHARED, map.fd().as_fd(), 0) }
                .map_err(|errno| MappingError::Map(errno.into()))?;
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { start, len }),
            None => Err(MappingError::Map(io::ErrorKind::AddrNotAvailable.into())),
        }
    }
}

impl<T> Deref for Mapping<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory is mapped as long as this lives, page-aligned, and has `len` entries of this
        // size, as `of` found out. Whatever is in them is valid, since all of it is atomic words, which the
        // kernel and other processes may write at any time.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and references into it have ended.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

impl<T> fmt::Debug for Mapping<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("len", &self.len).finish_non_exhaustive()
    }
}

// === impl Word ===

impl Word {
    /// Sets bits.
    pub fn set_bits(&self, bits: u64) {
        self.0.fetch_or(bits, SeqCst);
    }
}

impl Cell for Word {
    fn read(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, SeqCst, SeqCst)
    }

    fn add(&self, delta: u64) -> u64 {
        self.0.fetch_add(delta, SeqCst)
    }

    fn write(&self, value: u64) {
        self.0.store(value, SeqCst);
    }
}

// === impl Seen ===

impl Cell for Seen {
    fn read(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn compare_exchange(&self, _: u64, _: u64) -> Result<u64, u64> {
        Err(self.read())
    }

    fn add(&self, _: u64) -> u64 {
        self.read()
    }

    fn write(&self, _: u64) {}
}
