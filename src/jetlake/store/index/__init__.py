"""What is kept in memory of messages: subjects, sequences and times."""
