"""Files: model files, matrices on disk and atomic writes. Every file from elsewhere is untrusted."""
