"""Programs and shared loops in LLVM's language, and LLVM itself."""
