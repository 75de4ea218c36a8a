/// `aima-engine --verify-bundle`: the bundle against its own list, with nothing but this launcher.
#ifndef AIMA_LAUNCHER_VERIFY_H
#define AIMA_LAUNCHER_VERIFY_H

/// Compare everything below the folder `root_fd` with share/aima/manifest.txt; print every difference and a
/// summary. Returns 0, 3 when something differs, or 1 when it cannot be told.
int verify_bundle(int root_fd);

#endif
