"""Groups whose members speak both protocols, and groups that change from one to the other (KIP-848 'Online Migration').
Only this folder sees two kinds of groups."""
