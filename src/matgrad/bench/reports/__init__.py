"""Reports of a measurement: its `record`, with machine and versions, and the `tables` and `plots` of a record."""
