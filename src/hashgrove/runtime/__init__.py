"""The foundation of all rooms: compiling, threads, BLAS, SIMD, random streams, parameter checks and progress."""
