"""Which files a path means, what each holds, and which format that is."""
