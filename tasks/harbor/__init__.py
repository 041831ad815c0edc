"""Harbor task folders: ours as folders that Harbor runs (`write`), and the wheels that judge in them (`wheels`)."""
