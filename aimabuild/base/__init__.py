"""What every layer may use: the error family, the reporter, files written whole, digests."""
