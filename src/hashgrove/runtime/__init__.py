"""What everything else runs on: compiling, threads, BLAS, SIMD, random streams, parameter checks and progress."""
