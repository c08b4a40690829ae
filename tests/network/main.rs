//! What needs a Debian mirror or a package index: real packages, and judges that pip installs. No Docker.

mod audit;
mod audit_planted;
mod deploy;
mod emit;
mod init;
mod killed_build;
mod lock_real;
mod oracle;
mod pypi;
mod sboms;
