"""What may leave: withholding, and what can be learnt by subtraction."""
