"""Files: model files, matrices on disk, and atomic writes. Every file that is read is treated as untrusted."""
