"""What people see: learning curves, pictures, videos and tables."""
