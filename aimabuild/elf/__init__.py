"""ELF files as the loader sees them: parse, resolve, audit. Reads files, writes none."""
