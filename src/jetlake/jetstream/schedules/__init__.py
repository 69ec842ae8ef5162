"""Message schedules: messages that publish others, at a time or again and again."""
