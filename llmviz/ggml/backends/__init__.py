"""Where graphs are computed: one file per backend, all behind `backend.Backend`."""
