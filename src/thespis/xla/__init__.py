"""All that exists because of the compiler: placement, threads, cached programs, several hosts."""
