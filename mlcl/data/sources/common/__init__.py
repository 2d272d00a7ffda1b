"""What several sources share: archives, tables, reviews, clinical notes."""
