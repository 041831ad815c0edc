"""The parts of the report page that `trainers.report` writes."""
