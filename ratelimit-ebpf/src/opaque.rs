//! Making the verifier forget.
//!
//! It follows every path with all that it knows of each value, and takes two paths for one only where they
//! know the same. A constant that differs without mattering later (the number of VLAN tags, say) thus
//! multiplies the paths of everything that follows. One million instructions is its limit.

use core::arch::asm;

/// `value` again, of which the verifier knows nothing any more.
///
/// `unknown` is any number that it does not know: two exclusive-ors with it cancel out, but the verifier
/// does not see that. Two instructions.
#[inline(always)]
pub(crate) fn opaque(value: u64, unknown: u64) -> u64 {
    let mut value = value;
    // SAFETY: two register operations that cancel out; no memory, stack or flags are touched.
    unsafe {
        asm!(
            "{value} ^= {unknown}",
            "{value} ^= {unknown}",
            value = inout(reg) value,
            unknown = in(reg) unknown,
            options(pure, nomem, nostack),
        );
    }
    value
}
